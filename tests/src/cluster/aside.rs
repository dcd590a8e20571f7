//! What goes on beside a test or a demo: a thread with a runtime and a client of its own, until it is told to end. The test
//! may block, as most of the test bed does, and nothing waits for it here.

use std::future::Future;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow};
use kube::Client;
use kube::config::Kubeconfig;
use tokio::sync::oneshot;

use super::{Cluster, client_of};

/// Resolves when the work is to end.
pub(super) type Sign = oneshot::Receiver<()>;

/// Work that goes on. Dropping it ends it as well, and forgets what became of it.
#[derive(Debug)]
pub(super) struct Aside {
    sign: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Aside {
    /// Begins it, with the rights of an administrator.
    pub(super) fn start<F>(cluster: &Cluster, work: impl FnOnce(Client, Sign) -> F + Send + 'static) -> Result<Self>
    where
        F: Future<Output = Result<()>>,
    {
        let path = cluster.kubeconfig();
        let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("reading {}", path.display()))?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
        let (sign, ending) = oneshot::channel();
        let thread =
            thread::spawn(move || runtime.block_on(async { work(client_of(kubeconfig).await?, ending).await }));
        Ok(Self { sign: Some(sign), thread: Some(thread) })
    }

    /// Tells it to end and waits until it has.
    pub(super) fn end(&mut self) -> Result<()> {
        drop(self.sign.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(outcome)) => outcome,
            Some(Err(_)) => Err(anyhow!("work beside the test ended in a panic")),
            None => Ok(()),
        }
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        self.end().ok();
    }
}
