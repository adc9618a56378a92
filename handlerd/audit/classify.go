package audit

// classify says what was done where e, entry i, does not join to last; before is the line in front of last. It looks at
// what the other lines say of these, so that the line that is named is the one that was touched.
func (c *chain) classify(before, last, e *entry, i int) *Tampering {
	next := c.lineAfter(i)
	referred := c.next[e.sum] || c.head.N == e.n && c.head.Digest == e.sum.String() // e is as it was written
	twice := len(c.byNumber[e.n]) > 1
	switch {
	case e.prev == last.sum:
		return e.bad(WasEdited, "its number is %d, where %d follows", e.n, last.n+1)
	case before != nil && e.prev == before.sum && e.n == last.n && e.sum != last.sum:
		return last.bad(WasInserted, "line %d follows the line before it", e.n)
	case next != nil && next.prev == last.sum && next.n == last.n+1 && referred && !twice:
		return e.bad(WasReordered, "line %d stands before line %d", e.n, next.n)
	case next != nil && next.prev == last.sum && next.n == last.n+1:
		return e.bad(WasInserted, "the line after it follows the line before it")
	case e.n == last.n+1 && referred:
		return last.bad(WasEdited, "the next line has another digest of it")
	case e.n == last.n+1:
		return e.bad(WasEdited, "what it says of the line before it is wrong, and nothing vouches for it")
	case e.n > last.n+1 && len(c.byNumber[last.n+1]) > 0:
		return e.bad(WasReordered, "line %d stands before line %d", e.n, last.n+1)
	case e.n > last.n+1 && !referred && next != nil && next.n == last.n+2:
		return e.bad(WasEdited, "its number is %d, where %d follows", e.n, last.n+1)
	case e.n == last.n+2:
		return e.bad(WasRemoved, "line %d before it is gone", last.n+1)
	case e.n > last.n+1:
		return e.bad(WasRemoved, "lines %d to %d before it are gone", last.n+1, e.n-1)
	case twice:
		return e.bad(WasInserted, "there is a line %d already", e.n)
	}
	return e.bad(WasReordered, "line %d stands behind line %d", e.n, last.n)
}

// lineAfter gives the chained line behind entry i, or nil.
func (c *chain) lineAfter(i int) *entry {
	for j := i + 1; j < len(c.entries); j++ {
		if c.entries[j].form == formLine {
			return &c.entries[j]
		}
	}
	return nil
}
