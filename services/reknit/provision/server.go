package provision

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"text/template"

	"github.com/nats-io/jwt/v2"

	"github.com/reknit/reknit/services/reknit/internal/files"
	"github.com/reknit/reknit/shared/bus"
)

//go:embed *.tmpl
var configuration embed.FS

// writeServers writes what each NATS server needs, and the accounts' tokens for Push. These revoke tokens of sites' servers, which
// are written first. A site at fault keeps nobody else from what is written.
func (i *installation) writeServers() error {
	for _, leaf := range i.leaves {
		i.sites = errors.Join(i.sites, i.writeLeafKit(leaf))
	}
	accounts, err := i.accountTokens()
	if err != nil {
		return err
	}
	routes, err := openAuthority(i.path(operatorFolder), "route-")
	if err != nil {
		return err
	}
	for _, server := range i.Servers {
		folder, others := i.path(serverFolder, server), i.addresses(server, routePort)
		if err := i.writeServer(folder, server, map[string]any{"Advertise": server, "Routes": others, "Accounts": accounts}); err != nil {
			return err
		}
		if err := writeCertificate(routes, folder, "route-", server, i.Servers); err != nil {
			return err
		}
	}
	if len(i.Servers) == 0 {
		if err := i.writeServer(i.path(serverFolder), "reknit", map[string]any{"Accounts": accounts}); err != nil {
			return err
		}
	}
	i.sites = errors.Join(i.sites, i.writeLeaves())
	for _, role := range []string{systemRole, keeperRole} {
		if err := i.writeKit(role, role, bus.Identity{}); err != nil {
			return err
		}
	}
	tokens, err := json.Marshal(accounts)
	if err != nil {
		return err
	}
	return files.Replace(i.path(operatorFolder, "accounts.json"), tokens, 0o600)
}

// writeLeaves writes what the servers of sites need beside their kits.
func (i *installation) writeLeaves() (faults error) {
	accounts, err := i.leafTokens()
	if err != nil {
		return err
	}
	for _, leaf := range i.leaves {
		settings := map[string]any{"Advertise": leaf, "Remotes": i.addresses("", leafPort), "Accounts": accounts}
		faults = errors.Join(faults, i.writeServer(i.kit(leafRole, leaf), leaf, settings))
	}
	return faults
}

// writeServer writes the configuration of a server and the certificate that it shows. It is known by its name, and by what
// the whole installation is.
func (i *installation) writeServer(folder, name string, settings map[string]any) error {
	operator, err := i.operatorToken()
	if err != nil {
		return err
	}
	settings["Name"], settings["Port"], settings["Leaves"] = name, i.Port, i.leaves
	settings["Folder"] = ""
	if i.Absolute {
		absolute, err := filepath.Abs(folder)
		if err != nil {
			return err
		}
		settings["Folder"] = absolute + "/"
	}
	settings["Operator"], settings["System"], settings["Nodes"] = operator, public(i.system), public(i.nodes)
	for _, file := range []string{"nats.conf", "accounts.conf"} {
		var text bytes.Buffer
		if err := template.Must(template.ParseFS(configuration, file+".tmpl")).Execute(&text, settings); err != nil {
			return err
		}
		if err := files.Replace(filepath.Join(folder, file), text.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return writeCertificate(i.authority, folder, "", "NATS", slices.Concat([]string{name}, i.Servers, i.Hosts))
}

// writeCertificate writes a certificate, its key and who signed it.
func writeCertificate(by *authority, folder, prefix, name string, hosts []string, roles ...*url.URL) error {
	certificate, key, err := by.certify(name, hosts, roles...)
	if err != nil {
		return err
	}
	for file, data := range map[string][]byte{"certificate.pem": certificate, "key.pem": key, "ca.pem": by.text} {
		if err := files.Replace(filepath.Join(folder, prefix+file), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Push gives a running server the accounts' tokens that Security wrote. Revoked users are disconnected when Push returns.
func Push(ctx context.Context, dir, url string) error {
	data, err := os.ReadFile(filepath.Join(dir, operatorFolder, "accounts.json"))
	if err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	var accounts map[string]string
	if err := json.Unmarshal(data, &accounts); err != nil {
		return fmt.Errorf("--dir: %w", err)
	}
	b, err := bus.Connect(ctx, bus.Config{URL: url, Name: "provision", Kit: filepath.Join(dir, operatorFolder, systemRole)})
	if err != nil {
		return fmt.Errorf("--push: expected the URL of a running server of this installation, as nats://HOST:PORT; one that is started later "+
			"knows by its accounts.conf who was revoked: %w", err)
	}
	defer b.Close()
	for _, token := range accounts {
		if err := push(ctx, b, token); err != nil {
			return fmt.Errorf("push to %s: %w", url, err)
		}
	}
	return nil
}

func push(ctx context.Context, b *bus.Bus, token string) error {
	claims, err := jwt.DecodeAccountClaims(token)
	if err != nil {
		return err
	}
	reply, err := b.Conn().RequestWithContext(ctx, "$SYS.REQ.CLAIMS.UPDATE", []byte(token))
	if err != nil {
		return fmt.Errorf("account %s: %w", claims.Name, err)
	}
	var answer struct {
		Error *struct{ Description string } `json:"error"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return fmt.Errorf("account %s: %w", claims.Name, err)
	}
	if answer.Error != nil {
		return fmt.Errorf("account %s: %w", claims.Name, errors.New(answer.Error.Description))
	}
	return nil
}
