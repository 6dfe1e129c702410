package snapshot

import (
	"errors"
	"fmt"
)

var (
	// ErrEmptied means that a policy store without policies would replace one that has policies. A
	// truncated file or a missing mount can cause this.
	ErrEmptied = errors.New("the policy store has no policies any more")
	// ErrStoreLosesFiles means that a policy store would lose its schema, its settings or its entities. The
	// files were moved or renamed.
	ErrStoreLosesFiles = errors.New("the policy store has lost its schema, its settings or its entities")
	// ErrUntenanted means that a policy store without tenants would replace one that has tenants. Its root
	// would then answer every request.
	ErrUntenanted = errors.New("the policy store has no tenants any more")
	// ErrShrunk means that a policy store would lose all its forbids or half its policies, which
	// Config.GuardShrink refuses.
	ErrShrunk = errors.New("the policy store has lost too many policies")
)

// CheckLosses refuses a store whose losses look like an accident: an emptied file, a missing folder.
// Strict is Config.GuardShrink.
func CheckLosses(old, s *Snapshots, strict bool) error {
	before, had := old.counted()
	after, has := s.counted()
	lost := old.archive.Lost(s.archive)
	switch {
	case before > 0 && after == 0:
		return ErrEmptied
	case len(old.Tenants()) > 0 && len(s.Tenants()) == 0:
		return ErrUntenanted
	case lost != "":
		return fmt.Errorf("%w: there is no %s any more", ErrStoreLosesFiles, lost)
	case old.archive.hasEntities("") && !s.archive.hasEntities(""):
		return fmt.Errorf("%w: there is nothing in %s any more", ErrStoreLosesFiles, FileEntities)
	case !strict:
		return nil
	case 2*after < before || had > 0 && has == 0:
		return fmt.Errorf("%w: %d policies (%d forbid), before %d (%d forbid)", ErrShrunk, after, has, before, had)
	}
	return nil
}

// checkTenantLosses is CheckLosses for the files of one tenant.
func checkTenantLosses(old, s *Snapshot, tenant string, strict bool) error {
	lost := old.archive.Lost(s.archive)
	had, forbade := old.Count(tenant)
	has, forbids := s.Count(tenant)
	switch {
	case lost != "" && TenantOf(lost) == tenant:
		return fmt.Errorf("%w: there is no %s any more", ErrStoreLosesFiles, lost)
	case old.archive.hasEntities(tenant) && !s.archive.hasEntities(tenant):
		return fmt.Errorf("%w: there is nothing in %s/%s/%s any more", ErrStoreLosesFiles, tenantsFolder, tenant, FileEntities)
	case strict && (2*has < had || forbade > 0 && forbids == 0):
		return fmt.Errorf("tenant %s: %w: %d policies (%d forbid), before %d (%d forbid)", tenant, ErrShrunk, has, forbids, had, forbade)
	}
	return nil
}
