module github.com/reknit/reknit/tests

go 1.26
