#!/bin/sh
# Mounts a broker's disk, which outlives its machine: attach-disk.sh aws|gcp|azure
#
# The cluster files of the clouds run this on each machine before Ray starts there. Broker N's disk is called
# raylog-broker-N; make it once (docs/deploy.md). It is formatted only if there is nothing on it.
set -eu
cloud=$1 mount=${RAYLOG_STATE:-/var/lib/raylog}
# Ray gives the labels of the machine's type as JSON.
number=$(echo "${RAY_OVERRIDE_LABELS:-}" | sed -n 's/.*"raylog-broker": *"\([0-9]*\)".*/\1/p')
[ -n "$number" ] || { echo "no broker's machine: no disk"; exit 0; }
disk=raylog-broker-$number
if mountpoint -q "$mount"; then exit 0; fi

case $cloud in
aws)
  token=$(curl -sf -X PUT http://169.254.169.254/latest/api/token -H 'X-aws-ec2-metadata-token-ttl-seconds: 300')
  about() { curl -sf -H "X-aws-ec2-metadata-token: $token" "http://169.254.169.254/latest/meta-data/$1"; }
  instance=$(about instance-id)
  AWS_DEFAULT_REGION=$(about placement/region)
  export AWS_DEFAULT_REGION
  volume=$(aws ec2 describe-volumes --filters "Name=tag:Name,Values=$disk" --query 'Volumes[0].VolumeId' --output text)
  device=/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_$(echo "$volume" | tr -d -)
  if [ ! -e "$device" ]; then
    aws ec2 wait volume-available --volume-ids "$volume" # a machine that is lost lets go of it first
    aws ec2 attach-volume --volume-id "$volume" --instance-id "$instance" --device /dev/sdf
  fi
  ;;
gcp)
  device=/dev/disk/by-id/google-$disk # attached by the cluster file
  ;;
azure)
  about() { curl -sf -H Metadata:true "http://169.254.169.254/metadata/instance/compute/$1?api-version=2021-02-01&format=text"; }
  device=/dev/disk/azure/scsi1/lun10
  if [ ! -e "$device" ]; then
    az login --identity --output none
    az vm disk attach --resource-group "$(about resourceGroupName)" --vm-name "$(about name)" --name "$disk" --lun 10
  fi
  ;;
*)
  echo "expected aws, gcp or azure, found $cloud" >&2
  exit 2
  ;;
esac

tries=0
while [ ! -e "$device" ]; do
  tries=$((tries + 1))
  [ "$tries" -le 60 ] || { echo "waited 60 s for $device, the disk $disk" >&2; exit 1; }
  sleep 1
done
# Exit code 2 of blkid: nothing was found there. With any other failure nothing is formatted.
found=0
sudo blkid -p "$device" || found=$?
case $found in
0) ;;
2) sudo mkfs.ext4 -q "$device" ;;
*) echo "blkid failed with $found for $device" >&2; exit 1 ;;
esac
sudo mkdir -p "$mount"
sudo mount -o noatime "$device" "$mount"
sudo chown "$(id -u):$(id -g)" "$mount"
