package events

import (
	"bytes"
	"encoding/json"
)

// cursor walks through valid JSON and builds nothing: encoding/json has no such walk, and a tree of each payload took
// twice as long as reading the payload.
type cursor struct {
	data []byte
	at   int
}

// peek returns the first byte of what comes next.
func (c *cursor) peek() byte {
	for c.data[c.at] == ' ' || c.data[c.at] == '\t' || c.data[c.at] == '\n' || c.data[c.at] == '\r' {
		c.at++
	}
	return c.data[c.at]
}

// more reports whether the object or list that was entered has another member, and steps out of it where it has none.
func (c *cursor) more() bool {
	if c.peek() == ',' {
		c.at++
		return true
	}
	if end := c.data[c.at]; end == '}' || end == ']' {
		c.at++
		return false
	}
	return true
}

// name returns the name of an object's next member, and goes to its value.
func (c *cursor) name() []byte {
	c.peek()
	quoted := c.skip()
	c.peek()
	c.at++ // the colon
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1]
	}
	var name string
	_ = json.Unmarshal(quoted, &name) // it is valid
	return []byte(name)
}

// skip goes behind the next value, and returns it.
func (c *cursor) skip() []byte {
	c.peek()
	from := c.at
	for depth := 0; ; {
		switch c.data[c.at] {
		case '"':
			c.text()
		case '{', '[':
			depth++
			c.at++
		case '}', ']':
			depth--
			c.at++
		case ',', ':', ' ', '\t', '\n', '\r':
			c.at++
		default:
			c.word()
		}
		if depth == 0 {
			return c.data[from:c.at]
		}
	}
}

// text goes behind a text in quotes.
func (c *cursor) text() {
	for c.at++; c.data[c.at] != '"'; c.at++ {
		if c.data[c.at] == '\\' {
			c.at++
		}
	}
	c.at++
}

// word goes behind a number, true, false or null.
func (c *cursor) word() {
	for ; c.at < len(c.data); c.at++ {
		switch c.data[c.at] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return
		}
	}
}
