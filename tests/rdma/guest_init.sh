#!/bin/busybox sh
# PID 1 of a lab guest: loads the modules in order, mounts the host's root (read-only, with a tmpfs
# over it) and the run's folder, and hands over to guest_main.sh inside. Called by the kernel; built
# into the initramfs by lab_build.sh. LAB_GUEST, LAB_BOOT and LAB_SOURCE come from the kernel's
# command line. Invariant: every way out powers the machine off, so QEMU ends by itself.
export PATH=/bin:/sbin
/bin/busybox mkdir -p /sbin /dev /proc /sys /host /rw /new
/bin/busybox --install -s /bin

die() {
    echo "lab init: $*"
    poweroff -f
    sleep 60
}

mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys

while read -r module; do
    need=1
    case $module in
    \?*) need=0 module=${module#?} ;;
    esac
    insmod "/modules/$module.ko" || [ $need = 0 ] || die "module $module cannot be loaded"
done </modules/order

# The host's files don't change meanwhile, so a guest may cache them. The run's folder is written
# through at once.
mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=1048576,cache=loose host /host || die "no root over 9p"
mount -t tmpfs -o mode=755 rw /rw
mkdir -p /rw/up /rw/work
mount -t overlay -o lowerdir=/host,upperdir=/rw/up,workdir=/rw/work overlay /new || die "no overlay"
mkdir -p /new/lab /new/proc /new/sys /new/dev /new/run
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=none lab /new/lab || die "no folder of the run"
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/pts /new/dev/shm
ln -s /proc/self/fd /new/dev/fd
mount -t devpts devpts /new/dev/pts
mount -t tmpfs -o mode=1777 shm /new/dev/shm
mount -t tmpfs -o mode=755 run /new/run
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
hostname "lab-$LAB_GUEST"

chroot /new /bin/bash /lab/guest_main.sh
poweroff -f
sleep 60
