module github.com/reknit/reknit/services/monitor

go 1.26
