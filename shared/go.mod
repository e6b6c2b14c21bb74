module github.com/reknit/reknit/shared

go 1.26
