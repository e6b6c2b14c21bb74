package doctor

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/jwt/v2"

	"github.com/reknit/reknit/shared/bus"
)

// clusterOf returns the cluster that a kit is for, by the subjects on which it may speak; empty where it does not tell.
func clusterOf(kit string) string {
	text, err := os.ReadFile(filepath.Join(kit, bus.CredentialsFile))
	if err != nil {
		return ""
	}
	token, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		return ""
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return ""
	}
	for _, subject := range append(claims.Pub.Allow, claims.Sub.Allow...) {
		parts := strings.Split(subject, ".")
		if len(parts) > 3 && parts[0] == "reknit" && (parts[1] == "event" || parts[1] == "pulse") && parts[2] != "*" {
			return parts[2]
		}
	}
	return ""
}
