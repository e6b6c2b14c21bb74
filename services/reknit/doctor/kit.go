package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/services/agent/mtls"
	"github.com/reknit/reknit/services/reknit/inventory"
	"github.com/reknit/reknit/services/reknit/permission"
	"github.com/reknit/reknit/shared/bus"
)

// soon is how long before its end a certificate is to be renewed.
const soon = 30 * 24 * time.Hour

// openKit reads whose kit this is. A node's id is the key in it.
func (d *doctor) openKit() (err error) {
	if d.node.Kit == "" {
		return nil
	}
	if d.kit, err = bus.ReadIdentity(d.node.Kit); err != nil {
		return fmt.Errorf("REKNIT_NATS_KIT: expected a folder of reknit provision security: %w", err)
	}
	if d.node.Node == "" && d.isNode() {
		d.node.Node = d.kit.Key
	}
	return nil
}

// isUser and isNode tell whose kit it is; neither holds where there is none.
func (d *doctor) isUser() bool {
	return d.kit.Key != "" && d.kit.Key == d.kit.Speakers[permission.User]
}
func (d *doctor) isNode() bool { return d.kit.API != "" && !d.isUser() }

// keys looks at what a kit must not let come as a surprise.
func (d *doctor) keys(context.Context) []Finding {
	if d.kit.Key == "" {
		return found(unseen, "", "there is none (REKNIT_NATS_KIT): whoever reaches NATS can speak for everybody")
	}
	if d.node.Node != "" && d.isNode() && d.node.Node != d.kit.Key {
		return found(wrong, "unset REKNIT_AGENT_NODE, or set it to "+d.kit.Key, "it is that of another node than %s", d.node.Node)
	}
	if _, err := tls.LoadX509KeyPair(filepath.Join(d.node.Kit, bus.CertificateFile), filepath.Join(d.node.Kit, bus.KeyFile)); err != nil {
		d.unfit = true
		return found(wrong, mendKit, "its certificate and key cannot be used: %v", err)
	}
	is, named := clusterOf(d.node.Kit), cmp.Or(d.live.Cluster, os.Getenv("REKNIT_CLUSTER"))
	if is != "" && named != "" && is != named {
		d.unfit = true
		return found(wrong, "unset REKNIT_CLUSTER, or set it to "+is, "it is for the cluster %s, and %s is named", is, named)
	}
	d.live.Cluster = cmp.Or(named, is)
	if d.isNode() {
		if _, err := mtls.Open(d.node.Kit); err != nil { // the role of a node, too
			return found(wrong, mendKit, "%v", err)
		}
	}
	end, err := endOf(filepath.Join(d.node.Kit, bus.CertificateFile))
	renew := mendKit + ": no restart is needed"
	switch left := time.Until(end); {
	case err != nil:
		return found(wrong, renew, "%v", err)
	case left < 0:
		return found(wrong, renew, "its certificate ended on %s", end.Format(time.DateOnly))
	case left < soon:
		return found(warning, renew, "its certificate ends on %s", end.Format(time.DateOnly))
	}
	return found(fine, "", "its certificate ends on %s", end.Format(time.DateOnly))
}

func endOf(file string) (end time.Time, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return end, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return end, fmt.Errorf("%s: expected a certificate", file)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return end, fmt.Errorf("%s: %w", file, err)
	}
	return certificate.NotAfter, nil
}

// builds lists of which builds services are.
func builds(services []inventory.Service) string {
	var all []string
	for _, service := range services {
		all = append(all, service.Build())
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), " and ")
}
