module github.com/reknit/reknit/tests

go 1.26

require (
	github.com/cloudevents/sdk-go/v2 v2.16.2
	github.com/reknit/reknit/events v0.0.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	github.com/json-iterator/go v1.1.12 // indirect
	github.com/modern-go/concurrent v0.0.0-20180306012644-bacd9c7ef1dd // indirect
	github.com/modern-go/reflect2 v1.0.2 // indirect
	golang.org/x/text v0.14.0 // indirect
)

replace github.com/reknit/reknit/events => ../events
