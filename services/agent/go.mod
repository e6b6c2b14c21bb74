module github.com/reknit/reknit/services/agent

go 1.26
