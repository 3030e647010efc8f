#!/bin/sh
# dpkg: remove, or upgrade NEW-VERSION. rpm: 0 for a removal, 1 for an upgrade.
set -e
case "${1-}" in
remove | 0) ;;
*) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now junction.socket junction.service
fi
