module github.com/reknit/reknit/events

go 1.26
