#!/bin/sh
# dpkg: remove, purge, or upgrade NEW-VERSION. rpm: 0 for a removal, 1 for an upgrade. A removal leaves
# the configuration and the state; dpkg --purge takes both. rpm has no purge.
set -e
case "${1-}" in
purge)
	rm -rf /etc/junction
	for kind in lib cache log; do
		# The first is a link to the second where systemd made the folder for a user of its own.
		rm -rf "/var/$kind/junction" "/var/$kind/private/junction"
	done
	;;
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
