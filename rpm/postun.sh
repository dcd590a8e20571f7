# After removal of a version; $1 counts the versions that stay. As %systemd_postun_with_restart.
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload >/dev/null 2>&1 || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart nodelet.service >/dev/null 2>&1 || :
    else
        # A unit that had failed would be listed as "not-found failed" until the next boot.
        systemctl reset-failed nodelet.service >/dev/null 2>&1 || :
    fi
fi
# RPM knows no purge: the last version takes journal, identity and downloads with it. In /etc/nodelet rpm keeps an
# edited nodelet.toml as nodelet.toml.rpmsave, and what an administrator added.
if [ "$1" -eq 0 ]; then
    rm -rf /var/lib/nodelet /var/cache/nodelet /run/nodelet
fi
