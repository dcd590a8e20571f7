//! The recipes. A change to any of them makes a new image under a new hash; the old one is removed.

use super::{File, Recipe};

/// Debian with systemd and apt. No network manager (the address comes from a file, see [`NETWORK`]), no timers that
/// would take dpkg's lock in the middle of a test, and a journal that survives a reboot.
pub(crate) static BASE: Recipe = Recipe {
    name: "base",
    parent: None,
    packages: &[
        "systemd",
        "systemd-sysv",
        "dbus",
        "apt",
        "ca-certificates",
        "iproute2",
        "iptables",
        "iputils-ping",
        "netbase",
        "procps",
        "curl",
        "kmod",
        "gpg",
    ],
    script: "
        systemctl --root=/ enable testbed-network.service
        systemctl --root=/ mask console-getty.service getty@.service e2scrub_reap.service \
            apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer
        mkdir -p /var/log/journal
        rm -f /etc/hostname /etc/machine-id /var/lib/dbus/machine-id
        : > /etc/resolv.conf
        : > /etc/apt/sources.list
        rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
        apt-get clean
    ",
    files: &[
        File { path: "/usr/lib/testbed/network", mode: 0o755, content: NETWORK },
        File { path: "/etc/systemd/system/testbed-network.service", mode: 0o644, content: NETWORK_UNIT },
        File { path: "/etc/hosts", mode: 0o644, content: "127.0.0.1 localhost\n::1 localhost\n" },
    ],
};

const NETWORK: &str = r"#!/bin/sh
# The address and the routes of this node, from files that the test bed wrote.
set -eu
ip link set host0 up
ip addr replace $(cat /etc/testbed/address) dev host0
if [ -e /etc/testbed/routes ]; then ip -force -batch /etc/testbed/routes; fi
";

const NETWORK_UNIT: &str = r"[Unit]
Description=Address of this test node
DefaultDependencies=no
Before=network.target network-pre.target sysinit.target
Wants=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/testbed/network

[Install]
WantedBy=sysinit.target
";

/// The base with dnf. Debian's rpm keeps its database in a home directory by default, and knows nothing of the base
/// system, which is not made of RPMs: one dummy RPM provides what packages ask for.
pub(crate) static RPM: Recipe = Recipe {
    name: "rpm",
    parent: Some(&BASE),
    packages: &["dnf", "dnf-plugins-core", "rpm"],
    script: "
        cd /tmp
        rpmbuild -bb --define '_topdir /tmp/rpmbuild' /usr/lib/testbed/base-system.spec >/tmp/rpmbuild.log 2>&1 \
            || { cat /tmp/rpmbuild.log; exit 1; }
        rpm -i --nodeps /tmp/rpmbuild/RPMS/noarch/base-system-*.rpm
        rpm -q --provides base-system | grep -q ^/bin/sh
        rm -rf /tmp/rpmbuild /tmp/rpmbuild.log
        rm -f /etc/yum.repos.d/*.repo
    ",
    files: &[
        File { path: "/etc/rpm/macros", mode: 0o644, content: "%_dbpath /var/lib/rpm\n" },
        File { path: "/etc/dnf/vars/releasever", mode: 0o644, content: "40\n" },
        // Debian's package switches this plugin on, and without a repository of its own dnf then refuses to work.
        File { path: "/etc/dnf/plugins/local.conf", mode: 0o644, content: "[main]\nenabled = 0\n" },
        File { path: "/usr/lib/testbed/base-system.spec", mode: 0o644, content: BASE_SYSTEM_SPEC },
    ],
};

const BASE_SYSTEM_SPEC: &str = "Name: base-system
Version: 1
Release: 1
Summary: Stands for the base system of a test node, which is not made of RPMs
License: Apache-2.0
BuildArch: noarch
AutoReqProv: no
Provides: /bin/sh /usr/bin/sh /bin/bash /usr/bin/bash /usr/bin/systemctl
Provides: bash coreutils glibc systemd systemd-units systemd-libs shadow-utils ca-certificates util-linux
Provides: libc.so.6()(64bit) libm.so.6()(64bit) libgcc_s.so.1()(64bit) ld-linux-x86-64.so.2()(64bit)
Provides: ld-linux-aarch64.so.1()(64bit) rtld(GNU_HASH)

%description
Stands for the base system of a test node, which is not made of RPMs.

%files
";

/// The base with a container runtime. The kubelet itself is bound into the node, so that its version is a choice of
/// the test and not of the image.
pub(crate) static KUBE: Recipe = Recipe {
    name: "kube",
    parent: Some(&BASE),
    packages: &["containerd", "runc", "containernetworking-plugins"],
    script: "
        systemctl --root=/ enable testbed-cgroups.service
        systemctl --root=/ disable containerd.service
    ",
    files: &[
        File { path: "/usr/lib/testbed/cgroups", mode: 0o755, content: CGROUPS },
        File { path: "/etc/systemd/system/testbed-cgroups.service", mode: 0o644, content: CGROUPS_UNIT },
        File { path: "/etc/containerd/config.toml", mode: 0o644, content: CONTAINERD },
        File { path: "/etc/systemd/system/kubelet.service", mode: 0o644, content: KUBELET_UNIT },
        File { path: "/etc/sysctl.d/90-testbed.conf", mode: 0o644, content: "net.ipv4.ip_forward = 1\n" },
    ],
};

/// nspawn mounts the v1 controllers read-only; a remount is refused as busy, a fresh mount is not.
pub(crate) const CGROUPS: &str = r"#!/bin/sh
# Makes the cgroup v1 controllers writable. With cgroup v2 there is nothing to do.
set -eu
for controller in cpuset cpu cpuacct memory pids devices freezer blkio; do
    dir=/sys/fs/cgroup/$controller
    if mountpoint -q $dir; then
        umount $dir
        mount -t cgroup -o $controller cgroup $dir
    fi
done
";

const CGROUPS_UNIT: &str = r"[Unit]
Description=Writable control groups for the kubelet
DefaultDependencies=no
Before=sysinit.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/testbed/cgroups

[Install]
WantedBy=sysinit.target
";

/// `restrict_oom_score_adj`: without it runc fails where the machine lacks `CAP_SYS_RESOURCE`.
const CONTAINERD: &str = r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
"#;

const KUBELET_UNIT: &str = r"[Unit]
Description=kubelet
Wants=containerd.service
After=containerd.service

[Service]
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml --kubeconfig=/etc/kubernetes/kubelet.conf --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf $KUBELET_EXTRA_ARGS
EnvironmentFile=-/etc/default/kubelet
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
";

/// The base with cloud-init as Debian's cloud images have it. Whatever else a node needs comes later, from what
/// cloud-init is told.
pub(crate) static CLOUD: Recipe = Recipe {
    name: "cloud",
    parent: Some(&BASE),
    packages: &["cloud-init"],
    script: CLOUD_SCRIPT,
    files: &[
        File { path: "/usr/lib/testbed/cgroups", mode: 0o755, content: CGROUPS },
        File { path: "/etc/systemd/system/testbed-cgroups.service", mode: 0o644, content: CGROUPS_UNIT },
        File { path: "/etc/cloud/cloud.cfg.d/90-testbed.cfg", mode: 0o644, content: CLOUD_CONFIG },
    ],
};

/// The same for dnf. The system is Debian's in truth, so cloud-init is told that it is Fedora.
pub(crate) static CLOUD_RPM: Recipe = Recipe {
    name: "cloud-rpm",
    parent: Some(&RPM),
    packages: &["cloud-init"],
    script: CLOUD_SCRIPT,
    files: &[
        File { path: "/usr/lib/testbed/cgroups", mode: 0o755, content: CGROUPS },
        File { path: "/etc/systemd/system/testbed-cgroups.service", mode: 0o644, content: CGROUPS_UNIT },
        File { path: "/etc/cloud/cloud.cfg.d/90-testbed.cfg", mode: 0o644, content: CLOUD_CONFIG },
        File { path: "/etc/cloud/cloud.cfg.d/91-fedora.cfg", mode: 0o644, content: CLOUD_FEDORA },
        // apt is there, too.
        File {
            path: "/usr/lib/nodelet/nodelet.toml.d/10-testbed.toml",
            mode: 0o644,
            content: "packages.manager = \"dnf\"\n",
        },
    ],
};

const CLOUD_SCRIPT: &str = "
    systemctl --root=/ enable testbed-cgroups.service
    systemctl --root=/ enable cloud-init-local.service cloud-init.service cloud-config.service cloud-final.service
    if [ -e /lib/systemd/system/networking.service ]; then systemctl --root=/ disable networking.service; fi
    rm -rf /var/lib/cloud
";

/// Where a machine finds its user data is the cloud's affair, and so is its network. The archive in `sources.list` is
/// what the test makes it: cloud-init would write Debian's mirrors there, which nodes can't reach. The default locale is
/// one that only cloud images have.
const CLOUD_CONFIG: &str = "datasource_list: [NoCloud]
network: {config: disabled}
apt: {preserve_sources_list: true}
locale: C.UTF-8
";

/// Fedora's units start cloud-init when there is a bus that the host name can be set over; Debian's start it earlier.
const CLOUD_FEDORA: &str = "system_info: {distro: fedora}
preserve_hostname: true
";

/// The base with the tools that nodelet is measured against in `make bench`. Their own daemons are off: each is run when
/// its turn comes, and must not disturb the others' turns. Of Ansible the core is enough.
pub(crate) static BENCH: Recipe = Recipe {
    name: "bench",
    parent: Some(&BASE),
    packages: &["puppet-agent", "ansible-core", "python3-apt", "cfengine3"],
    script: "
        systemctl --root=/ mask puppet.service cfengine3.service cf-execd.service cf-monitord.service \
            cf-serverd.service cf-apache.service cf-hub.service cf-postgres.service cf-php-fpm.service
        rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin
        apt-get clean
    ",
    files: &[],
};
