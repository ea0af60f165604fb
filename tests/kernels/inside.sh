# The second part of a kernel machine's start, in the host's files: what an init would mount; then the command.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 CI=true
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
for folder in /dev/shm /run; do mount -t tmpfs tmpfs $folder; done # /tmp may hold the checkout
mount -t cgroup2 cgroup2 /sys/fs/cgroup
echo "+cpu +memory +pids" >/sys/fs/cgroup/cgroup.subtree_control
mount -t bpf bpf /sys/fs/bpf
modprobe tun
ip link set lo up
hostname kernel-machine
dmesg -n 1
echo "kernel machine: $(uname -r), $(nproc) cores"
# the command
sync
echo o >/proc/sysrq-trigger
sleep 20
