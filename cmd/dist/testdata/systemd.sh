#!/bin/bash
# Installs the package in a Debian that systemd has booted, and drives the service: TestUnderSystemd.
# The last line says "passed" or which line failed.
set -eux -o pipefail
trap 'echo "failed: line $LINENO"; journalctl -u packhorse --no-pager | tail -40' ERR

main_pid() { systemctl show -p MainPID --value packhorse; }
status() { curl -s -o /dev/null -w '%{http_code}' "http://127.0.0.1:8080$1" || true; }
ready() { for _ in $(seq 600); do [ "$(status /readyz)" != 200 ] || return 0; sleep 0.1; done; return 1; }

cd /root
dpkg -i /drill/packhorse.deb
packhorse org generate acme --orgs /etc/packhorse/orgs
systemctl enable packhorse
systemctl start packhorse
ready
[ "$(status /console)" = 200 ]

# It is what the unit says: another user, one capability, no new ones, a filter of system calls.
grep -q "^Uid:	$(id -u packhorse)	" "/proc/$(main_pid)/status"
grep -q '^CapEff:	0000000000000400$' "/proc/$(main_pid)/status"
grep -q '^NoNewPrivs:	1$' "/proc/$(main_pid)/status"
grep -q '^Seccomp:	2$' "/proc/$(main_pid)/status"
[ "$(stat -c '%U %a' /var/lib/packhorse)" = 'packhorse 700' ]

# Git and the API work under it, and so does what else the server does with its disk.
TOKEN=$(packhorse token --org acme --key acme-private.pem --repo demo --scope git:write --scope repo:write)
curl -sSf -X POST -H "Authorization: Bearer $TOKEN" http://127.0.0.1:8080/api/v1/repos
git init -q -b main work
git -C work -c user.name=a -c user.email=a@example.com commit -q --allow-empty -m first
git -C work push -q "http://t:$TOKEN@127.0.0.1:8080/demo.git" HEAD:refs/heads/main
git clone -q "http://t:$TOKEN@127.0.0.1:8080/demo.git" copy
packhorse status --data /var/lib/packhorse
packhorse gc --data /var/lib/packhorse

# A reload keeps the process, a crash brings another, and a stop is clean.
before=$(main_pid)
systemctl reload packhorse
[ "$(main_pid)" = "$before" ]
kill -9 "$before"
for _ in $(seq 600); do [ "$(main_pid)" = 0 ] || [ "$(main_pid)" = "$before" ] || break; sleep 0.1; done
ready
git -C copy pull -q
systemctl stop packhorse
[ "$(systemctl show -p Result --value packhorse)" = success ]

# The removal stops it; the purge leaves the data and the keys.
systemctl start packhorse
ready
dpkg -r packhorse
[ "$(status /readyz)" = 000 ]
dpkg -P packhorse
[ -d /var/lib/packhorse/keys ]
[ -f /etc/packhorse/orgs/acme/org.yaml ]
[ ! -e /etc/packhorse/config.yaml ]
echo passed
