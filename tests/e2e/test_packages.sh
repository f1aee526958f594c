#!/usr/bin/env bash
# The Debian packages (--full): two builds in different folders, locales, time zones and at different times are equal;
# lintian finds no error; in a clean Debian folder they install, the sample configuration is in force, a client of
# libtern-dev builds and python3-tern loads; booted there, the service behaves as deploy/systemd describes; a purge
# leaves nothing. What this machine cannot do is skipped with a message.
source "$(dirname "$0")/with_ternd.sh"
[[ -n ${TERN_FULL:-} ]] || skip "packages are built with --full alone"
[[ -z $SANITIZE ]] || skip "nobody packages an instrumented build"
for tool in dpkg-buildpackage dh dh_python3 scdoc; do needs $tool "to build packages (deploy/setup.sh)"; done
ROOT=$DIR/root

# ---- reproducible ----
export DEBFULLNAME="The tests of Tern" DEBEMAIL=tests@tern.invalid
export SOURCE_DATE_EPOCH=$(git -C "$TERN_SOURCE" log -1 --format=%ct 2>/dev/null || date +%s)
bash "$TERN_SOURCE/deploy/package.sh" "$DIR/one" >"$DIR/one.out" 2>&1 || { tail -n 40 "$DIR/one.out"; fail "deploy/package.sh"; }
mkdir -p "$DIR/another place"
(cd "$TERN_SOURCE" && { git ls-files -z --cached --others --exclude-standard 2>/dev/null || find . -name 'build*' -prune -o -type f -print0; } |
    tar -c --null --ignore-failed-read -T - 2>/dev/null) | tar -x -C "$DIR/another place"
(cd "$DIR/another place" && umask 077 && TZ=Asia/Tokyo LC_ALL=C LANG=tr_TR.UTF-8 TMPDIR=/var/tmp bash deploy/package.sh "$DIR/two") >"$DIR/two.out" 2>&1 ||
    { tail -n 40 "$DIR/two.out"; fail "deploy/package.sh in another folder"; }
for package in ternd tern-agent libtern0.2 libtern-dev python3-tern tern-tools; do
    compgen -G "$DIR/one/${package}_*.deb" >/dev/null || fail "there is no package $package"
done
for file in "$DIR"/one/*.deb; do
    cmp "$file" "$DIR/two/${file##*/}" || fail "${file##*/} is not reproducible"
    [[ $(dpkg-deb -f "$file" Maintainer) == "$DEBFULLNAME <$DEBEMAIL>" ]] || fail "the maintainer of ${file##*/} is another"
done
echo "reproducible: $(ls "$DIR"/one/*.deb | wc -l) packages, built twice, are equal"

if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "$DIR"/one/*.deb >"$DIR/lintian" 2>&1 || { cat "$DIR/lintian"; fail "lintian"; }
    echo "lintian: no errors, $(grep -c '^W:' "$DIR/lintian") warnings"
else
    echo "lintian: not looked at, it is missing"
fi

# ---- a clean folder ----
[[ $(id -u) == 0 ]] || skip "the packages are right; installing them into a clean folder needs root"
needs debootstrap "to make a clean folder"
MIRROR=$(sed -n 's/^URIs: //p; s/^deb \(\[[^]]*\] \)\?\([^ ]*\) .*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1) || true
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates,gcc,libc6-dev,pkg-config bookworm "$ROOT" ${MIRROR:+"$MIRROR"} >"$DIR/debootstrap" 2>&1 ||
    skip "the packages are right; debootstrap: $(tail -n 1 "$DIR/debootstrap")"
cp --remove-destination /etc/resolv.conf "$ROOT/etc/resolv.conf"
inside() { chroot "$ROOT" env DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@" >"$DIR/inside" 2>&1 || { tail -n 30 "$DIR/inside"; fail "in the clean folder: $*"; }; }
files() { (cd "$ROOT" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./tmp -o -path ./var/log -o -path ./var/cache -o -path ./var/lib/apt -o -path ./var/lib/dpkg \) -prune -o -print | sort); }
inside apt-get update -q
# dependencies come first, so that the expected result of a purge is known
inside apt-get install -y -q --no-install-recommends adduser python3-numpy libprotobuf-c-dev liburing2 libyaml-0-2 libjansson4 libssl3 libibverbs1 libxxhash0 libmicrohttpd12 libcurl4
# ---- an image ----
image() {
    local b=(buildah --root "$DIR/store" --runroot "$DIR/run") c
    export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
    c=$("${b[@]}" from scratch 2>"$DIR/buildah") && "${b[@]}" add -q "$c" "$ROOT" / >"$DIR/buildah" 2>&1 &&
        "${b[@]}" commit -q "$c" base >"$DIR/buildah" 2>&1 || { echo "image: buildah cannot work here: $(tail -n 1 "$DIR/buildah")"; return; }
    "${b[@]}" bud -f "$TERN_SOURCE/deploy/Containerfile" --build-arg BASE=localhost/base -t tern "$DIR/one" >"$DIR/buildah" 2>&1 ||
        { tail -n 20 "$DIR/buildah"; fail "deploy/Containerfile"; }
    c=$("${b[@]}" from --security-opt seccomp=unconfined localhost/tern)
    "${b[@]}" run "$c" -- bash -ec '/usr/sbin/ternd --config /etc/tern/ternd.yaml 2>/tmp/log & p=$!
        for _ in $(seq 300); do ternctl ping --count 1 >/tmp/answer 2>&1 && break; sleep 0.2; done
        cat /tmp/answer /tmp/log; test "$(id -un)" = tern; grep -q answers /tmp/answer; kill $p; wait $p
        test -e "$(echo /usr/lib/*/libibverbs/libmlx5-*.so)"' >"$DIR/buildah" 2>&1 ||
        { cat "$DIR/buildah"; fail "a container of the image"; }
    echo "image: built, started, answered, ended"
}
if command -v buildah >/dev/null; then image; else echo "image: there is no buildah"; fi

files >"$DIR/before"
cp "$ROOT/etc/passwd" "$DIR/passwd"
mkdir "$ROOT/tmp/packages"
cp "$DIR"/one/*.deb "$ROOT/tmp/packages/"
inside sh -c 'apt-get install -y -q --no-install-recommends /tmp/packages/*.deb'

inside ternd --version
inside sh -c 'dpkg -L ternd | grep -qx /etc/tern/ternd.yaml && test -x /usr/bin/ternctl && man=/usr/share/man/man8/ternd.8.gz && test -f $man'
inside ternd --config /etc/tern/ternd.yaml --plan
inside ternd --config /usr/share/tern/ternd-gpus.yaml --plan
inside sh -c 'gcc -o /tmp/engine /usr/share/doc/libtern-dev/examples/tiny_engine.c $(pkg-config --cflags --libs tern) && ldd /tmp/engine | grep libtern.so.0.2'
inside python3 -c 'import tern'
inside tern-sim --seeds 50

# ---- booted ----
booted() {
    cat >"$ROOT/tern-test.sh" <<'SCRIPT'
set -euxo pipefail
until_ok() { # silent: a thousand lines
    local rc=1
    { set +x; } 2>/dev/null
    for _ in $(seq 1200); do "$@" && rc=0 && break; sleep 0.1; done
    set -x
    return $rc
}
logged() { journalctl -u "$1" --no-pager | grep -q "event=$2 "; }
tern-agent-says() { exec 9<>/dev/tcp/127.0.0.1/7003 && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&9 && grep -q "^$1\$" <&9; }
pid_of() { systemctl show -P MainPID ternd; }
mkdir -p /etc/systemd/system/ternd.service.d
printf '[Service]\nWatchdogSec=3\nTimeoutAbortSec=20\n' >/etc/systemd/system/ternd.service.d/test.conf
# Set up for GPUs, although there are none: what makes their files runs as root, and may fail.
install -D -m 644 /usr/share/tern/gpu.conf /etc/systemd/system/ternd.service.d/gpu.conf
printf '#!/bin/sh\necho "$(id -u) $*" >>/run/modprobed\nexit 1\n' >/usr/bin/nvidia-modprobe
chmod 755 /usr/bin/nvidia-modprobe
systemctl daemon-reload
systemctl start ternd.socket ternd-tenant@default.socket
[[ $(systemctl is-active ternd) == inactive ]]
until_ok ternctl ping --count 1 # the connection starts it
[[ $(systemctl is-active ternd) == active ]]
[[ $(systemctl show -P StatusText ternd) == "serving 1 tenants, 0 peers" ]]
grep -qx '0 -u -c 0' /run/modprobed
[[ $(journalctl -u ternd --no-pager | grep -c socket_taken) == 2 ]]
grep -Eq 'NoNewPrivs:.1' /proc/"$(pid_of)"/status && grep -Eq 'Seccomp:.2' /proc/"$(pid_of)"/status
systemctl reload ternd
until_ok logged ternd reloaded
before=$(pid_of)
kill -STOP "$before" # the watchdog ends it, and it is restarted
until_ok bash -c '[[ $(systemctl show -P NRestarts ternd) == 1 && $(systemctl show -P ActiveState ternd) == active ]]'
[[ $(pid_of) != "$before" ]]
ternctl ping --count 1
ls /run/tern/admin.sock.tape.*
systemctl start tern-agent
until_ok tern-agent-says ready
grep -Eq 'Seccomp:.2' /proc/"$(systemctl show -P MainPID tern-agent)"/status
systemctl stop tern-agent
if [[ -e /usr/local/bin/etcd ]]; then
    systemd-run --unit=etcd -p DynamicUser=yes -p StateDirectory=etcd /usr/local/bin/etcd --data-dir /var/lib/etcd \
        --{listen-client,advertise-client}-urls=http://127.0.0.1:2379 --{listen-peer,initial-advertise-peer}-urls=http://127.0.0.1:2380 \
        --initial-cluster=default=http://127.0.0.1:2380
    node=$(sed -n 's/^node: *\([^ ]*\).*/\1/p' /etc/tern/ternd.yaml)
    echo "TERN_MEMBER_OPTIONS=--node=$node --address=127.0.0.1:7001 --endpoint=http://127.0.0.1:2379" >/etc/tern/member.env
    systemctl start tern-member
    until_ok logged tern-member lease_granted
    grep -Eq 'Seccomp:.2' /proc/"$(systemctl show -P MainPID tern-member)"/status
    systemctl stop tern-member
    logged tern-member left # /etc/tern/member.env stays, for the purge
fi
tern-replay --spawn --sessions 2 --turns 2
systemctl stop ternd
[[ -S /run/tern/admin.sock && -S /run/tern/default.sock ]]
systemctl stop ternd.socket ternd-tenant@default.socket
sed -i 's/^tenants:/nonsense: 1\ntenants:/' /etc/tern/ternd.yaml
if systemctl start ternd; then exit 1; fi # a wrong configuration is not retried
[[ $(systemctl show -P ExecMainStatus ternd) == 2 && $(systemctl show -P NRestarts ternd) == 0 ]]
echo all checks passed
SCRIPT
    cat >"$ROOT/etc/systemd/system/tern-test.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash -c 'bash /tern-test.sh >/tern-test.log 2>&1; journalctl -u ternd -u "tern-*" -u etcd --no-pager >>/tern-test.log; systemctl poweroff'
UNIT
    mkdir -p "$ROOT/etc/systemd/system/multi-user.target.wants"
    ln -s ../tern-test.service "$ROOT/etc/systemd/system/multi-user.target.wants/"
    # A network of its own: the units' ports may be in use on this machine.
    local nspawn=(systemd-nspawn --register=no --keep-unit --private-network -D "$ROOT")
    if command -v etcd >/dev/null; then nspawn+=(--bind-ro="$(command -v etcd):/usr/local/bin/etcd"); else echo "booted: tern-member is not run, there is no etcd"; fi
    SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 timeout 600 "${nspawn[@]}" -b >"$DIR/nspawn" 2>&1 </dev/null || true
    if [[ ! -s $ROOT/tern-test.log ]]; then
        echo "booted: systemd-nspawn cannot boot here: $(tail -n 3 "$DIR/nspawn" | tr -d '\r' | xargs -d '\n')"
    elif grep -qx "all checks passed" "$ROOT/tern-test.log"; then
        echo "booted: socket activation, notify, reload, watchdog restart, tern-agent, tern-member, a wrong configuration: all checks passed"
    else
        cat "$ROOT/tern-test.log"
        fail "the unit in a booted folder"
    fi
    rm -rf "$ROOT"/tern-test.* "$ROOT"/etc/systemd/system/{tern-test.service,multi-user.target.wants/tern-test.service,ternd.service.d} "$ROOT/usr/bin/nvidia-modprobe"
}
if command -v systemd-nspawn >/dev/null; then booted; else echo "booted: there is no systemd-nspawn (package systemd-container)"; fi

# ---- gone ----
inside apt-get purge -y -q tern-agent ternd libtern0.2 libtern-dev python3-tern tern-tools
rm -rf "$ROOT/tmp/packages" "$ROOT/tmp/engine"
files | grep -i 'tern' | grep -vxFf "$DIR/before" >"$DIR/left" && { cat "$DIR/left"; fail "a purge leaves these"; }
diff <(cut -d: -f1 "$DIR/passwd") <(cut -d: -f1 "$ROOT/etc/passwd") || fail "a purge leaves a user"
echo "packages: ok"
