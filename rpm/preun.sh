# Before removal; $1 counts the versions that stay. As %systemd_preun.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl --no-reload disable --now nodelet.service >/dev/null 2>&1 || :
    else
        systemctl --no-reload disable nodelet.service >/dev/null 2>&1 || :
    fi
fi
