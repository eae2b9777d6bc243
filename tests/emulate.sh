#!/bin/bash
# The op's tests on a CPU that this machine need not have: Bochs, which emulates every instruction of a Sapphire Rapids
# (AVX512-BF16 among them), boots Linux on it and runs them there. It takes half an hour and says nothing of speed.
#
#   sudo tests/emulate.sh [pytest arguments]     in a checkout after `make setup`; `make emulate` calls it
#
# Wanted: Linux on x86-64, root (for chroot) and debootstrap. Everything else, emulator and kernel too, comes from Debian 13
# and stays in build/emulate. What the guest prints comes out here; the exit code is pytest's.
set -euo pipefail
cd "$(dirname "$0")/.."
HERE=$PWD BUILD=$PWD/build/emulate
ROOT=$BUILD/debian            # a Debian 13 with the tools
GUEST=$BUILD/guest            # the files of the emulated machine
MIRROR=${MIRROR:-http://deb.debian.org/debian}
PYTEST=("$@")
(($#)) || PYTEST=(tests/test_products.py tests/test_backends.py tests/test_precision.py -k
  "(rounds_the_same and cpu) or (no_number and cpu) or nothing_more or op_has_them or changes_no_bit or fewer_rows or text_in_bfloat16")
say() { echo "emulate: $*" >&2; }
[[ $(id -u) = 0 ]] || { say "it needs root, for chroot"; exit 2; }
command -v debootstrap >/dev/null || { say "it needs debootstrap (Debian's package of that name)"; exit 2; }
[[ -e src/gfrnn/ops/cpu/_op.so ]] || { say "there is no op in this checkout: make setup"; exit 2; }

if [[ ! -e $ROOT/ready ]]; then
  say "fetching Debian 13, Bochs and a kernel"
  rm -rf "$ROOT"
  mkdir -p "$ROOT"
  debootstrap --variant=minbase trixie "$ROOT" "$MIRROR" >"$BUILD/debootstrap.log"
  chroot "$ROOT" bash -ec '
    apt-get -q -y install --no-install-recommends bochs bochs-term bochsbios vgabios busybox-static isolinux syslinux-common xorriso cpio
    cd /tmp
    apt-get -q download "$(apt-cache depends linux-image-amd64 | sed -n "s/.*Depends: \(linux-image-[0-9].*\)/\1/p" | head -1)"
    dpkg -x linux-image-*.deb /kernel' >>"$BUILD/debootstrap.log" 2>&1
  touch "$ROOT/ready"
fi

say "the guest: $(git describe --always --dirty=+ 2>/dev/null || echo this checkout), its Python and its libraries"
rm -rf "$GUEST"
mkdir -p "$GUEST"/{bin,proc,sys,dev,tmp}
cp "$ROOT/bin/busybox" "$GUEST/bin/"
for tool in sh grep ip uname; do ln -s busybox "$GUEST/bin/$tool"; done
BASE=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')
mkdir -p "$GUEST$BASE" "$GUEST$HERE"
LEFT_OUT=(--exclude=transformers --exclude=onnx --exclude=onnxruntime --exclude=mypy)
tar -C "$BASE" "${LEFT_OUT[@]}" --exclude=site-packages --exclude=./lib/python3.*/test -c . | tar -C "$GUEST$BASE" -x
tar "${LEFT_OUT[@]}" -c .venv src tests pyproject.toml | tar -C "$GUEST$HERE" -x
{ find "$GUEST" -name "*.so*" -type f; realpath .venv/bin/python; } | xargs ldd 2>/dev/null |
  awk '/^\t/ { for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i }' | sort -u | while read -r library; do
    [[ -e $GUEST$library ]] || install -D "$library" "$GUEST$library"
  done
mknod -m 666 "$GUEST/dev/urandom" c 1 9
mknod -m 666 "$GUEST/dev/null" c 1 3
chroot "$GUEST" "$HERE/.venv/bin/python" -c "import torch, pytest"  # whatever is missing is missed here, not in minutes
cat >"$GUEST/run.sh" <<RUN
cd '$HERE'
export HOME=/tmp PATH='$HERE/.venv/bin:/bin' OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1 COLUMNS=120
ip link set lo up
grep -m 1 "model name" /proc/cpuinfo
python -u -c 'import sys, pytest; from gfrnn.ops import cpu; print("the op uses", cpu.isa()); sys.exit(pytest.main(sys.argv[1:]))' \\
  -p no:cacheprovider --timeout 0 -v $(printf '%q ' "${PYTEST[@]}")
RUN
rm -f "$ROOT/disk.img"
mke2fs -q -t ext4 -O ^has_journal -d "$GUEST" "$ROOT/disk.img" "$(($(du -sm "$GUEST" | cut -f1) * 5 / 4 + 300))M"

# A first file system with the modules that the disk needs, and a CD that boots it.
rm -rf "$ROOT/first" "$ROOT/cd"
mkdir -p "$ROOT"/first/{bin,proc,sys,dev,mnt,modules} "$ROOT/cd/isolinux"
cp "$ROOT/bin/busybox" "$ROOT/first/bin/"
number=10
for module in scsi_common scsi_mod libata ata_piix sd_mod crc32c_generic libcrc32c mbcache jbd2 crc16 ext4; do
  found=$(find "$ROOT/kernel" -name "$module.ko*" | head -1)
  number=$((number + 1))
  case $found in
    *.xz) xz -dc "$found" >"$ROOT/first/modules/$number.ko" ;;
    ?*) cp "$found" "$ROOT/first/modules/$number.ko" ;;
  esac
done
cat >"$ROOT/first/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc p /proc; mount -t sysfs s /sys; mount -t devtmpfs d /dev
for module in /modules/*.ko; do insmod $module; done
sleep 2
mount -t ext4 /dev/sda /mnt
mount -t proc p /mnt/proc; mount -t devtmpfs d /mnt/dev; mount -t tmpfs t /mnt/tmp; mount -t sysfs s /mnt/sys
mkdir /mnt/dev/shm; mount -t tmpfs t /mnt/dev/shm
echo "guest begins"
chroot /mnt /bin/sh /run.sh
echo "guest ends with $?"
halt -f
INIT
chmod +x "$ROOT/first/init"
cp "$ROOT"/kernel/boot/vmlinuz-* "$ROOT/cd/isolinux/vmlinuz"
cp "$ROOT/usr/lib/ISOLINUX/isolinux.bin" "$ROOT/usr/lib/syslinux/modules/bios/ldlinux.c32" "$ROOT/cd/isolinux/"
# The clock is the number of instructions. AMX wants what this emulator does not have; without it the kernel boots.
cat >"$ROOT/cd/isolinux/isolinux.cfg" <<'BOOT'
default linux
timeout 1
label linux
 kernel vmlinuz
 append initrd=first.gz console=ttyS0,115200 quiet mitigations=off nokaslr tsc_early_khz=100000 tsc=reliable nowatchdog idle=halt lsm=capability nosmp acpi=off clearcpuid=amx_tile,amx_bf16,amx_int8
BOOT
cat >"$ROOT/bochsrc" <<'BOCHS'
config_interface: textconfig
display_library: rfb, options="timeout=0"
cpu: model=sapphire_rapids, count=1, ips=100000000, reset_on_triple_fault=0
memory: guest=2048, host=2048
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/vgabios/vgabios.bin
ata0-master: type=disk, mode=flat, path=/disk.img
ata1-master: type=cdrom, path=/boot.iso, status=inserted
boot: cdrom
com1: enabled=1, mode=file, dev=/serial.txt
log: /bochs.log
panic: action=fatal
clock: sync=none
BOCHS
chroot "$ROOT" bash -ec 'cd /first; find . | cpio -o -H newc --quiet | gzip -1 > /cd/isolinux/first.gz; cd /
  xorriso -as mkisofs -quiet -o boot.iso -b isolinux/isolinux.bin -c isolinux/boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table cd'

say "emulating; the first line comes after some minutes"
rm -f "$ROOT"/{serial.txt,disk.img.lock}
touch "$ROOT/serial.txt"
chroot "$ROOT" bochs -q -f /bochsrc >"$BUILD/bochs.txt" 2>&1 </dev/null &
BOCHS=$!
tail -n +1 -F --pid=$BOCHS "$ROOT/serial.txt" 2>/dev/null | sed -u -n 's/\r$//; /^guest begins/,$ { /^\[/! p }' &
trap 'kill $BOCHS 2>/dev/null || true' EXIT
until ! kill -0 $BOCHS 2>/dev/null || grep -q "^guest ends\|Kernel panic" "$ROOT/serial.txt"; do sleep 2; done
sleep 2
status=$(sed -n 's/\r$//; s/^guest ends with //p' "$ROOT/serial.txt")
[[ -n $status ]] || { say "the guest did not end: $ROOT/serial.txt and $ROOT/bochs.log say more"; exit 1; }
exit "$status"
