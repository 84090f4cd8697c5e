#!/bin/sh
# Runs the sshd of a machine in its own namespaces: machine.sh NAME DISK SHARED...
#
# DISK has the files of the machine ("upper") over those that all share, the root of this system. SHARED are
# read-only folders that may be on other file systems (the environment, the sources).
set -eu
name=$1 disk=$2 root=$2/root
shift 2
hostname "$name"
mkdir -p "$disk/work" "$disk/tmp" "$root"
chmod 1777 "$disk/tmp"
mount -t overlay -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" machine "$root"
for shared in "$@"; do
  mount --bind "$shared" "$root$shared"
  mount -o remount,bind,ro "$root$shared"
done
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o size=600m,mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount --bind "$disk/tmp" "$root/tmp"
mkdir "$root/run/sshd"
exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  chroot "$root" /usr/sbin/sshd -D -e -f /etc/ssh/machine_config
