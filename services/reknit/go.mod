module github.com/reknit/reknit/services/reknit

go 1.26
