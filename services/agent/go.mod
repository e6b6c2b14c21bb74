module github.com/reknit/reknit/services/agent

go 1.26.0

require (
	github.com/reknit/reknit/events v0.0.0
	github.com/reknit/reknit/shared v0.0.0
)

replace (
	github.com/reknit/reknit/events => ../../events
	github.com/reknit/reknit/shared => ../../shared
)

require (
	github.com/nats-io/nats-server/v2 v2.15.2
	github.com/nats-io/nats.go v1.55.0
)

require (
	github.com/antithesishq/antithesis-sdk-go v0.8.0-default-no-op // indirect
	github.com/google/go-tpm v0.9.8 // indirect
	github.com/minio/highwayhash v1.0.4 // indirect
	github.com/nats-io/jwt/v2 v2.8.2 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/time v0.16.0 // indirect
)

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2 // indirect
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/klauspost/compress v1.20.3 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	github.com/nats-io/nkeys v0.4.16 // indirect
	github.com/nats-io/nuid v1.0.1
	golang.org/x/crypto v0.58.0 // indirect
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.49.0 // indirect
)
