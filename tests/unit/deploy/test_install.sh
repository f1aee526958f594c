#!/usr/bin/env bash
# `cmake --install` puts these files, with these modes, and no others; an existing configuration stays.
set -euo pipefail
build=${TERN_BUILD:?the build folder}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
fail() { echo "$*"; exit 1; }
[[ -f $build/deploy/systemd/ternd.service ]] || { echo "skipped: this build makes no units"; exit 77; }
if [[ -n $(cache TERN_SANITIZE) || $(cache TERN_FUZZ) == ON || $(cache BUILD_SHARED_LIBS) == ON ]]; then
    echo "skipped: nobody installs an instrumented build"
    exit 77
fi
lib=$(cd "$build" && sed -n 's/^libdir=${prefix}\///p' client/tern.pc)
version=$(cache CMAKE_PROJECT_VERSION)
agent=
[[ ! -x $build/bin/tern-agent ]] || agent=tern-agent

member=
[[ ! -x $build/bin/tern-member ]] || member=tern-member

install_to() {
    cmake --install "$build" --prefix "$work/usr" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
}
install_to
{
    for program in ternctl tern-replay tern-bench tern-sim; do echo "755 bin/$program"; done
    echo "755 sbin/ternd"
    if [[ -n $agent ]]; then
        echo "755 sbin/tern-agent"
        echo "644 lib/systemd/system/tern-agent.service"
        for file in rules.yaml dashboard.json; do echo "644 share/tern/prometheus/$file"; done
    fi
    if [[ -n $member ]]; then
        echo "755 sbin/tern-member"
        echo "644 lib/systemd/system/tern-member.service"
    fi
    for program in ternd ternctl tern-replay tern-bench tern-sim $agent $member; do
        echo "644 share/bash-completion/completions/$program"
        echo "644 share/zsh/vendor-completions/_$program"
    done
    if [[ -f $build/deploy/pages/ternd.8 ]]; then
        for page in ternctl.1 tern-replay.1 tern-bench.1 tern-sim.1 ternd.yaml.5 ternd.8 ${agent:+tern-agent.8} ${member:+tern-member.8}; do
            echo "644 share/man/man${page##*.}/$page"
        done
    else
        echo "this build has no man pages" >&2
    fi
    cat <<FILES
644 etc/tern/ternd.yaml
644 include/tern.h
644 include/tern_async.h
644 include/tern_blocks.h
644 include/tern_err.h
644 include/tern_fetch.h
644 include/tern_lease.h
644 include/tern_pool.h
644 include/tern_record.h
644 include/tern_session.h
644 $lib/libtern.a
777 $lib/libtern.so
777 $lib/libtern.so.0.2
644 $lib/libtern.so.$version
644 $lib/pkgconfig/tern.pc
644 lib/systemd/system/ternd.service
644 lib/systemd/system/ternd-tenant@.socket
644 lib/systemd/system/ternd.socket
644 lib/sysusers.d/ternd.conf
644 lib/tmpfiles.d/ternd.conf
644 share/tern/gpu.conf
755 share/tern/make-certs.sh
644 share/tern/ternd-gpus.yaml
644 share/tern/ternd.yaml
FILES
} | sort >"$work/want"
(cd "$work/usr" && find . ! -type d -printf '%m %P\n' | sort) >"$work/got"
sed -i 's/^755 \(.*\/libtern\.so\.[0-9.]*\)$/644 \1/' "$work/got" # some linkers' libraries can be executed
diff "$work/want" "$work/got" || fail "< wanted, > installed"

echo "# ours" >>"$work/usr/etc/tern/ternd.yaml"
install_to
tail -n 1 "$work/usr/etc/tern/ternd.yaml" | grep -qx "# ours" || fail "a configuration was replaced"
cmp "$work/usr/share/tern/ternd.yaml" "$TERN_SOURCE/deploy/ternd.yaml"

# The installed programs run in place, and ternd reads the files that the certificates' script makes.
"$work/usr/sbin/ternd" --version
(unset TERN_BIN TERND && "$work/usr/bin/tern-replay" --spawn --sessions 2 --turns 2) >"$work/out" 2>&1 || { cat "$work/out"; fail "tern-replay --spawn"; }
bash "$work/usr/share/tern/make-certs.sh" "$work/certs" node
"$work/usr/sbin/ternd" --config "$work/usr/etc/tern/ternd.yaml" --check-config --admin.socket "$work/admin.sock" \
    --tls.ca "$work/certs/ca.pem" --tls.cert "$work/certs/node.pem" --tls.key "$work/certs/node.key" >"$work/out" 2>&1 ||
    grep -q "/run/tern" "$work/out" || { cat "$work/out"; fail "--check-config of the sample"; }
echo "install: ok"
