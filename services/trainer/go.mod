module github.com/reknit/reknit/services/trainer

go 1.26
