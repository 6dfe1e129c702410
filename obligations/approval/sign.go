package approval

// SignToken returns claims as a compact JWS (RFC 7515, section 3.1) of a type, signed with the current
// key. A key verifies for 90 days after it stopped signing.
func (s *Service) SignToken(typ string, claims any) (string, error) {
	return s.ring().sign(typ, claims)
}

// VerifyToken decodes the claims of a token of that type, if a key of the service has signed it. The
// caller checks the times in them.
func (s *Service) VerifyToken(typ, token string, claims any) error {
	return s.ring().verify(typ, token, claims)
}
