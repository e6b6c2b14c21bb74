module github.com/reknit/reknit/services/planner

go 1.26
