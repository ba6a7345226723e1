package config

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// A setter parses a value, checks it and stores it if it is right.
type setter = func(value string) error

var errEmpty = errors.New("must not be empty")

// zero says whether a duration may be 0.
type zero bool

const (
	orZero  zero = true
	notZero zero = false
)

func duration(dst *time.Duration, z zero) setter {
	return func(value string) error {
		d, err := time.ParseDuration(value)
		switch {
		case err != nil:
			return errors.New("is not a duration such as 10s or 1m30s")
		case d < 0:
			return errors.New("must not be negative")
		case d == 0 && z == notZero:
			return errors.New("must be over 0")
		}
		*dst = d
		return nil
	}
}

// hopTime is a duration of a hop: long enough to be of use, if it is not 0.
func hopTime(dst *time.Duration, z zero) setter {
	return func(value string) error {
		var d time.Duration
		if err := duration(&d, z)(value); err != nil {
			return err
		}
		if d != 0 && d < shortest {
			return fmt.Errorf("must not be under %s", shortest)
		}
		*dst = d
		return nil
	}
}

func anyText(dst *string) setter {
	return func(value string) error {
		*dst = value
		return nil
	}
}

func text(dst *string) setter {
	return func(value string) error {
		if value == "" {
			return errEmpty
		}
		*dst = value
		return nil
	}
}

func isBool(value string) bool {
	_, err := strconv.ParseBool(value)
	return err == nil
}

func boolean(dst *bool) setter {
	return func(value string) error {
		if !isBool(value) {
			return errors.New("is neither true nor false")
		}
		*dst, _ = strconv.ParseBool(value)
		return nil
	}
}

// lenientBoolean takes what is no boolean for false.
func lenientBoolean(dst *bool) setter {
	return func(value string) error {
		*dst, _ = strconv.ParseBool(value)
		return nil
	}
}

func level(dst *logrus.Level) setter {
	return func(value string) error {
		l, err := logrus.ParseLevel(value)
		if err != nil {
			return errors.New("is none of TRACE, DEBUG, INFO, WARN, ERROR, FATAL, PANIC")
		}
		*dst = l
		return nil
	}
}

// masks reads regular expressions. The SDK panics at one that does not compile.
func masks(dst *[]string) setter {
	return func(value string) error {
		list := splitList(value)
		for _, mask := range list {
			if _, err := regexp.Compile("^" + mask + "$"); err != nil {
				return fmt.Errorf("mask %q: %w", mask, err)
			}
		}
		*dst = list
		return nil
	}
}

func trustDomains(dst *[]spiffeid.TrustDomain) setter {
	return func(value string) error {
		var domains []spiffeid.TrustDomain
		for _, item := range splitList(value) {
			domain, err := spiffeid.TrustDomainFromString(item)
			if err != nil {
				return fmt.Errorf("%q is not a trust domain: %w", item, err)
			}
			domains = append(domains, domain)
		}
		*dst = domains
		return nil
	}
}

func listenURLs(dst *[]url.URL) setter {
	return func(value string) error {
		var urls []url.URL
		for _, item := range splitList(value) {
			u, err := listenURL(item)
			if err != nil {
				return fmt.Errorf("%q: %w", item, err)
			}
			urls = append(urls, *u)
		}
		if len(urls) == 0 {
			return errEmpty
		}
		*dst = urls
		return nil
	}
}

func address(dst **url.URL) setter {
	return func(value string) error {
		u, err := upstreamURL(value)
		if err != nil {
			return err
		}
		*dst = u
		return nil
	}
}

func workloadAPI(dst *string) setter {
	return func(value string) error {
		if value == "" {
			return errEmpty
		}
		if err := workloadapi.ValidateAddress(value); err != nil {
			return err
		}
		*dst = value
		return nil
	}
}

// splitList splits at commas and drops space around items and empty items.
func splitList(value string) []string {
	var list []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			list = append(list, item)
		}
	}
	return list
}
