module github.com/reknit/reknit/services/restorer

go 1.26
