package provision

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/nats-io/jwt/v2"

	"github.com/reknit/reknit/shared/bus"
)

//go:embed nats.conf.tmpl
var configuration string

// writeServer writes what the NATS server needs, and the accounts' tokens for Push.
func (i *installation) writeServer() error {
	folder, err := filepath.Abs(i.path(serverFolder))
	if err != nil {
		return err
	}
	operator, err := i.operatorToken()
	if err != nil {
		return err
	}
	accounts, err := i.accountTokens()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	err = template.Must(template.New("nats.conf").Parse(configuration)).Execute(&text, map[string]any{
		"Port": i.Port, "Folder": filepath.ToSlash(folder), "Operator": operator, "System": public(i.system), "Accounts": accounts,
	})
	if err != nil {
		return err
	}
	certificate, key, err := i.authority.certify("NATS", i.Hosts)
	if err != nil {
		return err
	}
	for file, data := range map[string][]byte{
		"nats.conf": text.Bytes(), "certificate.pem": certificate, "key.pem": key, "ca.pem": i.authority.text,
	} {
		if err := write(filepath.Join(folder, file), data, 0o600); err != nil {
			return err
		}
	}
	if err := i.writeKit(systemRole, systemRole, nil); err != nil {
		return err
	}
	tokens, err := json.Marshal(accounts)
	if err != nil {
		return err
	}
	return write(i.path(operatorFolder, "accounts.json"), tokens, 0o600)
}

// Push gives a running server the accounts' tokens that Security wrote. Who was revoked is disconnected when it returns.
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
		return err
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
