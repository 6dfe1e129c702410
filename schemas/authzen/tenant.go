package authzen

import "regexp"

var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// ValidTenant reports whether name can be a tenant's.
func ValidTenant(name string) bool { return tenantName.MatchString(name) }
