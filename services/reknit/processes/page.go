package processes

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/reknit/reknit/services/reknit/tell"
)

// usualPage is where the page of a cluster on this machine is looked for first.
const usualPage = "127.0.0.1:4280"

// PageFlag adds the flag that says where the monitor serves its page.
func PageFlag(flags *pflag.FlagSet, page *string) {
	flags.StringVar(page, "page", "auto", "host:port on which the monitor serves the page that shows the cluster live; auto: "+
		usualPage+", or a free port where that is taken; none")
}

// PageShows says where the page is. The monitor answers nothing to a reader without the token that it asks for.
func PageShows(address string) string {
	query := ""
	if os.Getenv("REKNIT_PAGE_TOKEN") != "" {
		query = "?token=$REKNIT_PAGE_TOKEN" // not itself: what is said here may be kept where others read
	}
	return fmt.Sprintf("http://%s/%s shows the cluster live", address, query)
}

// PageAddress returns the host:port that the flag says, empty for none. It fails where the address cannot be listened on: the
// monitor would try again and again.
func PageAddress(flag string) (string, error) {
	address := flag
	switch flag {
	case "none":
		return "", nil
	case "auto":
		address = usualPage
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return "", tell.UsageError{Err: fmt.Errorf("--page: expected host:port, auto or none, got %q", flag)}
	}
	listener, err := net.Listen("tcp", address)
	if taken := errors.Is(err, syscall.EADDRINUSE); taken && flag == "auto" {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	} else if taken {
		err = fmt.Errorf("%s is taken; auto finds a free port, and says which", address)
	}
	if err != nil {
		return "", fmt.Errorf("--page: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
