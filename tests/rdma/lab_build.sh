# Makes the kernel and the initramfs of the lab's guests in $cache; sourced by lab.sh. Debian's
# kernel package is downloaded and unpacked, never installed; nothing is downloaded if the inputs of
# the present files are the same. The caller of lab_build holds no other lock; two labs of one build
# tree build once. Prints on standard error.

lab_skip() {
    echo "skipped: $*" >&2
    exit 77
}

# Checks for the programs that the lab needs, and those that the guests run from the same root.
lab_need() {
    local entry
    for entry in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static rdma:iproute2 ip:iproute2 \
        ibv_devinfo:ibverbs-utils setpriv:util-linux flock:util-linux; do
        command -v "${entry%%:*}" >/dev/null || lab_skip "the RDMA lab needs ${entry%%:*} (package ${entry#*:})"
    done
    [[ -e /etc/libibverbs.d/rxe.driver ]] || lab_skip "the RDMA lab needs rxe's user side (package ibverbs-providers)"
    busybox cpio --help >/dev/null 2>&1 || lab_skip "the RDMA lab needs a busybox with cpio (package busybox-static)"
}

kernel_package() {
    apt-cache depends linux-image-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-[0-9][^ ]*\)$/\1/p' | head -n 1
}

# Downloads the kernel package to $1. A fresh container has no package lists; old ones name lost
# files.
fetch_kernel() {
    local name
    command -v apt-get >/dev/null || lab_skip "no apt-get here to download linux-image-amd64 with"
    for attempt in 1 2; do
        name=$(kernel_package)
        if [[ -n $name ]] && (cd "$1" && timeout 300 apt-get -q download "$name") >"$1/apt.log" 2>&1; then
            return
        fi
        [[ $attempt -eq 1 ]] && { timeout 120 apt-get -q update >"$1/apt-update.log" 2>&1 || true; }
    done
    lab_skip "the package linux-image-amd64 cannot be downloaded ($(tail -n 1 "$1/apt.log" 2>/dev/null || echo 'not known to apt'))"
}

# Unpacks vmlinuz and modules/ of the package into $cache.
unpack_kernel() {
    local work=$cache/kernel.new names=() file module missing=
    rm -rf "$work"
    mkdir -p "$work/modules"
    fetch_kernel "$work"
    while read -r module; do
        names+=("*/${module#\?}.ko")
    done < <(module_list)
    dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb |
        tar -x -C "$work" --wildcards --transform 's,.*/,,' './boot/vmlinuz-*' "${names[@]}" 2>"$work/tar.log" || true
    rm -f "$work"/linux-image-*.deb
    file=$(echo "$work"/vmlinuz-*)
    [[ -s $file ]] || lab_skip "no kernel in the package linux-image-amd64"
    echo "${file##*vmlinuz-}" >"$work/version"
    mv "$file" "$work/vmlinuz"
    while read -r module; do
        mv "$work/${module#\?}.ko" "$work/modules/" 2>/dev/null || missing+=" ${module#\?}"
    done < <(module_list)
    [[ -z $missing ]] || lab_skip "Debian's kernel $(<"$work/version") has no module$missing"
    rm -rf "$cache/kernel"
    mv "$work" "$cache/kernel"
}

module_list() { sed 's/#.*//; /^ *$/d' "$lab_here/modules.txt"; }

pack_initramfs() {
    local root=$cache/initramfs
    rm -rf "$root"
    mkdir -p "$root/bin" "$root/modules"
    cp "$(command -v busybox)" "$root/bin/busybox"
    cp "$lab_here/guest_init.sh" "$root/init"
    chmod 755 "$root/init" "$root/bin/busybox"
    cp "$cache"/kernel/modules/*.ko "$root/modules/"
    module_list >"$root/modules/order"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null) >"$cache/initrd.new"
    mv "$cache/initrd.new" "$cache/initrd"
    rm -rf "$root"
}

lab_build() {
    local key lock
    lab_need
    mkdir -p "$cache"
    exec {lock}>"$cache/lock"
    flock -w 600 "$lock" || lab_skip "another lab has been building in $cache for 600 s"
    key=$(module_list | sha256sum)
    if [[ ! -s $cache/kernel/vmlinuz || $(cat "$cache/kernel/key" 2>/dev/null) != "$key" ]]; then
        say "fetching Debian's kernel package"
        unpack_kernel
        echo "$key" >"$cache/kernel/key"
        rm -f "$cache/initrd"
    fi
    key=$(cat "$lab_here/guest_init.sh" "$cache/kernel/key" "$(command -v busybox)" | sha256sum)
    if [[ ! -s $cache/initrd || $(cat "$cache/initrd.key" 2>/dev/null) != "$key" ]]; then
        pack_initramfs
        echo "$key" >"$cache/initrd.key"
    fi
    exec {lock}>&-
}
