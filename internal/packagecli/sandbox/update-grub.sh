#!/bin/sh
# The update-grub of a test host: the boot loader's configuration from the files it is made from.
set -e
GRUB_CMDLINE_LINUX='' GRUB_CMDLINE_LINUX_DEFAULT=''
for file in /etc/default/grub /etc/default/grub.d/*.cfg; do
  # shellcheck disable=SC1090 # whatever files there are
  if [ -f "$file" ]; then . "$file"; fi
done
mkdir -p /boot/grub
{
  echo "menuentry 'trial' {"
  echo "  linux /boot/vmlinuz root=/dev/vda1 ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT" | sed 's/  *$//; s/\([^ ]\)  */\1 /g'
  echo "}"
} >/boot/grub/grub.cfg
