module github.com/reknit/reknit/services/negotiator

go 1.26

require (
	github.com/reknit/reknit/events v0.0.0
	github.com/reknit/reknit/shared v0.0.0
)

replace (
	github.com/reknit/reknit/events => ../../events
	github.com/reknit/reknit/shared => ../../shared
)
