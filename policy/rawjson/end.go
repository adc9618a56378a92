package rawjson

import "bytes"

// End gives where the value that begins at i ends, in JSON that [Skip] has checked: it looks for quotes and brackets alone,
// which for long strings takes a small part of Skip's time. Of other bytes it gives some position within b.
func End(b []byte, i int) int {
	i = Space(b, i)
	if i >= len(b) {
		return len(b)
	}
	switch b[i] {
	case '"':
		return stringEnd(b, i)
	case '{', '[':
		return groupEnd(b, i)
	}
	for i < len(b) && b[i] != ',' && b[i] != ']' && b[i] != '}' && b[i] > ' ' {
		i++
	}
	return i
}

// groupEnd gives the end of the object or array that begins at i.
func groupEnd(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = stringEnd(b, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return len(b)
}

// stringEnd gives the end of the string whose opening quote is at i.
func stringEnd(b []byte, i int) int {
	for at := i + 1; ; {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return len(b)
		}
		at += n
		slashes := 0
		for at-1-slashes > i && b[at-1-slashes] == '\\' {
			slashes++
		}
		at++
		if slashes%2 == 0 {
			return at
		}
	}
}
