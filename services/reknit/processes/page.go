package processes

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/spf13/pflag"
)

// usualPage is where the page of a cluster on this machine is looked for first.
const usualPage = "127.0.0.1:4280"

// PageFlag adds the flag that says where the monitor serves its page.
func PageFlag(flags *pflag.FlagSet, page *string) {
	flags.StringVar(page, "page", "auto", "host:port on which the monitor serves the page that shows the cluster live; auto: "+
		usualPage+", or a free port where that is taken; none")
}

// PageAddress returns the host:port that the flag says, empty for none.
func PageAddress(flag string) (string, error) {
	switch flag {
	case "none":
		return "", nil
	case "auto":
	default:
		if _, _, err := net.SplitHostPort(flag); err != nil {
			return "", fmt.Errorf("--page: expected host:port, auto or none, got %q", flag)
		}
		return flag, nil
	}
	listener, err := net.Listen("tcp", usualPage)
	if errors.Is(err, syscall.EADDRINUSE) {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return "", fmt.Errorf("--page: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
