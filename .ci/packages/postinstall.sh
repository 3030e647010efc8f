#!/bin/sh
# dpkg: configure [OLD-VERSION]. rpm: 1 for an installation, 2 for an upgrade.
set -e
case "${1-}" in
configure) upgrade=${2-} ;;
1) upgrade= ;;
2) upgrade=yes ;;
*) exit 0 ;;
esac

# The unit has DynamicUser=, which takes the user "junction" if it exists. A fixed user can read a
# folder that others cannot.
if ! getent passwd junction >/dev/null; then
	useradd --system --user-group --home-dir /var/lib/junction --no-create-home --shell /usr/sbin/nologin junction
fi
chgrp junction /etc/junction
chmod 0750 /etc/junction

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$upgrade" ]; then
		systemctl try-restart junction.service || echo 'junction was not restarted; see: systemctl status junction' >&2
	fi
fi
