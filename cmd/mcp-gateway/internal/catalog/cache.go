package catalog

import (
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"github.com/policy-service/policy-service/cmd/mcp-gateway/internal/boltfile"
)

// A pinCache spares calls a transaction while no process writes. Its zero value
// is empty.
type pinCache struct {
	mu      sync.Mutex
	version boltfile.Version
	pins    map[string]*Pin // by key; nil means that nothing is cached
}

// pin returns a pin, or nil. The caller must not change it.
func (c *pinCache) pin(db *boltfile.File, server, name string) (*Pin, error) {
	version, settled, err := db.Version()
	if err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	if !settled {
		return readPin(db, server, name)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pins == nil || version != c.version {
		if c.pins, err = readPins(db); err != nil {
			return nil, err
		}
		c.version = version
	}
	return c.pins[string(key(server, name))], nil
}

func readPins(db *boltfile.File) (map[string]*Pin, error) {
	pins := make(map[string]*Pin)
	return pins, db.View(func(tx *bolt.Tx) error {
		return tx.Bucket(bucketPins).ForEach(func(k, value []byte) error {
			pin := new(Pin)
			if err := json.Unmarshal(value, pin); err != nil {
				return fmt.Errorf("read pin: %w", err)
			}
			pins[string(k)] = pin
			return nil
		})
	})
}

func readPin(db *boltfile.File, server, name string) (pin *Pin, err error) {
	err = db.View(func(tx *bolt.Tx) error {
		pin, err = get(tx, server, name)
		return err
	})
	return pin, err
}
