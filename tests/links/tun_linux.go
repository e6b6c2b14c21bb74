package links

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const tunDevice = "/dev/net/tun"

// openTUN makes a device in the namespace of this thread. Each read and write of the file is one packet behind a virtio
// header, which says how a large segment is to be cut and that its checksum is still open: both ends are this kernel,
// so that neither needs doing.
func openTUN() (device *os.File, name string, err error) {
	descriptor, err := unix.Open(tunDevice, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", tunDevice, err)
	}
	request, err := unix.NewIfreq("tun%d")
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(descriptor, unix.TUNSETIFF, request)
	}
	if err == nil {
		err = unix.IoctlSetInt(descriptor, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6)
	}
	device = os.NewFile(uintptr(descriptor), tunDevice)
	if err != nil {
		device.Close()
		return nil, "", fmt.Errorf("TUN device: %w", err)
	}
	return device, request.Name(), nil
}

const (
	virtioHeader = 10
	largest      = virtioHeader + 1<<16
)

// wireBytes is how long what stands in a read of a device would be on a wire: each packet of a large segment repeats
// the headers.
func wireBytes(read []byte) int {
	packet := read[virtioHeader:]
	segment := int(binary.NativeEndian.Uint16(read[4:]))
	transport := int(binary.NativeEndian.Uint16(read[6:])) // where the checksum begins
	const tcpOffset = 12                                   // of its length, in words, in the upper half of a byte
	if read[1] == unix.VIRTIO_NET_HDR_GSO_NONE || segment == 0 || len(packet) <= transport+tcpOffset {
		return len(packet)
	}
	headers := transport + int(packet[transport+tcpOffset]>>4)*4
	packets := (len(packet) - headers + segment - 1) / segment
	return len(packet) + (packets-1)*headers
}
