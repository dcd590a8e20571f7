# After installation; $1 counts the versions that are installed now. What %systemd_post does, written out, with
# one difference: Fedora's policy is that presets decide what is enabled, and the default preset disables services.
# nodelet is installed to run, on Debian as here, so that the first installation enables and starts it.
if [ "$1" -eq 1 ]; then
    # Without a running systemd (image build, chroot) this sets the symbolic link alone.
    systemctl --no-reload enable nodelet.service >/dev/null 2>&1 || :
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload >/dev/null 2>&1 || :
        # A configuration error is nodelet's to report, not a failed installation.
        systemctl start nodelet.service >/dev/null 2>&1 || :
    fi
fi
