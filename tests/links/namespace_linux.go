package links

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace without a name: it lives until it is closed and its last process ended.
type Namespace struct{ file *os.File }

// Able tells why links cannot be had here; nil where they can.
func Able() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("network namespaces need root, this is user %d", os.Geteuid())
	}
	if _, err := os.Stat(tunDevice); err != nil {
		return fmt.Errorf("links need TUN devices: %w", err)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return fmt.Errorf("links need iproute2: %w", err)
	}
	return nil
}

// NewNamespace returns a namespace with a loopback device and nothing else. It forwards what is not for itself.
func NewNamespace() (*Namespace, error) {
	var n Namespace
	err := onOwnThread(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("new network namespace: %w", err)
		}
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err == nil {
		err = n.IP("link set lo up")
	}
	if err == nil {
		err = n.Set("net.ipv4.ip_forward", "1")
	}
	return &n, err
}

// Do runs a function in the namespace: sockets, devices and processes that its goroutine makes belong to it.
func (n *Namespace) Do(function func() error) error {
	return onOwnThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return function()
	})
}

// Start starts a command in the namespace.
func (n *Namespace) Start(command *exec.Cmd) error { return n.Do(command.Start) }

// IP runs iproute2 in the namespace.
func (n *Namespace) IP(arguments string) error {
	return n.Do(func() error {
		if said, err := exec.Command("ip", strings.Fields(arguments)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", arguments, err, said)
		}
		return nil
	})
}

// Set sets a kernel parameter of the namespace.
func (n *Namespace) Set(parameter, value string) error {
	return n.Do(func() error {
		return os.WriteFile("/proc/sys/"+strings.ReplaceAll(parameter, ".", "/"), []byte(value), 0)
	})
}

// Close lets go of the namespace.
func (n *Namespace) Close() { n.file.Close() }

// onOwnThread runs a function on a thread that ends with it, since its namespace is nobody else's.
func onOwnThread(function func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- function()
	}()
	return <-done
}
