#!/bin/busybox sh
# The first process of a kernel machine: the host's files, read only, below a layer and memory; then inside.sh.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
for module in /modules/*.ko; do $b insmod $module || echo "kernel machine: insmod $module failed"; done
for share in host layer; do
	$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro $share /$share ||
		echo "kernel machine: no share $share"
done
$b mount -t tmpfs -o size=90% tmpfs /memory
$b mkdir /memory/upper /memory/work
$b mount -t overlay -o lowerdir=/layer:/host,upperdir=/memory/upper,workdir=/memory/work overlay /new
$b umount /proc /sys
$b mount --move /dev /new/dev
exec $b switch_root /new /bin/bash /kernel-machine
