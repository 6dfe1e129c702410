package evaluation

// mostKnownIDs is the largest number of entities of a tenant among which [Engine.IDs] looks.
const mostKnownIDs = 10_000

// IDs returns the ids of a tenant's stored entities by their type. It returns none of a store with more than 10,000
// entities.
func (e *Engine) IDs(tenant string) map[string][]string {
	s, _, err := e.begin(tenant)
	if err != nil || len(s.Entities.ByUID) > mostKnownIDs {
		return nil
	}
	ids := make(map[string][]string)
	for uid := range s.Entities.ByUID {
		ids[string(uid.Type)] = append(ids[string(uid.Type)], string(uid.ID))
	}
	return ids
}
