module github.com/reknit/reknit/services/negotiator

go 1.26
