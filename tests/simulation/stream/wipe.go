package stream

// Wipe has the server come back with an empty store, of the same streams. Nobody has a consumer any more.
func (s *Server) Wipe() {
	for _, stream := range s.streams() {
		stream.wipe()
	}
}

func (s *Stream) wipe() {
	for _, consumer := range s.durables {
		consumer.dropped = true
	}
	empty := newStream(s.server, s.config)
	if empty.lastOnly = s.lastOnly; s.Payloads != nil {
		empty.Payloads = s.Payloads
		empty.Payloads.Empty()
	}
	*s = *empty
}
