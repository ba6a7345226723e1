package directory

import (
	"container/list"
	"time"
)

// maxNames bounds each memory of the directory: 500 nodes with 16 endpoints each.
// With the longest names and URLs that the guard lets through that is 11 MiB, with
// usual ones 3. Beyond it the one unused for longest is forgotten, which costs a
// look-up.
const maxNames = 8192

// recent is a map that forgets: what was put keepFor ago, and the oldest where
// there are more than most. No call walks over what it keeps.
type recent[K comparable, V any] struct {
	keepFor time.Duration
	most    int
	order   *list.List // of *remembered, newest first
	places  map[K]*list.Element
}

type remembered[K comparable, V any] struct {
	key   K
	value V
	at    time.Time
}

func newRecent[K comparable, V any](keepFor time.Duration, most int) *recent[K, V] {
	return &recent[K, V]{keepFor: keepFor, most: most, order: list.New(), places: make(map[K]*list.Element)}
}

func (r *recent[K, V]) put(key K, value V) {
	r.forget(key)
	r.places[key] = r.order.PushFront(&remembered[K, V]{key: key, value: value, at: time.Now()})
	for oldest := r.at(r.order.Back()); r.order.Len() > r.most || time.Since(oldest.at) >= r.keepFor; oldest = r.at(r.order.Back()) {
		r.forget(oldest.key)
	}
}

func (r *recent[K, V]) get(key K) (value V, ok bool) {
	place, ok := r.places[key]
	if !ok {
		return value, false
	}
	m := r.at(place)
	if time.Since(m.at) >= r.keepFor {
		return value, false
	}
	return m.value, true
}

func (r *recent[K, V]) forget(key K) {
	if place, ok := r.places[key]; ok {
		r.order.Remove(place)
		delete(r.places, key)
	}
}

func (*recent[K, V]) at(place *list.Element) *remembered[K, V] {
	m, _ := place.Value.(*remembered[K, V])
	return m
}
