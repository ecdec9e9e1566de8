package shared

import "github.com/redis/rueidis"

// fence writes a value unless a newer version is there. Digits compare as text under every locale. The value's own life is
// renewed where it is there already. ARGV: value, life in ms, and in ms since 1970 until when it may arrive, 0 for ever.
var fence = rueidis.NewLuaScript(`
local value, life, arrives = ARGV[1], ARGV[2], tonumber(ARGV[3])
if arrives > 0 then
  local now = redis.call('TIME')
  if now[1] * 1000 + now[2] / 1000 > arrives then return 'late' end
end
local head = redis.pcall('GETRANGE', KEYS[1], 0, 20)
if type(head) == 'string' and #head == 21 and string.find(head, '^1%d+$') then
  local mine = string.sub(value, 1, 21)
  if head > mine then return 'newer' end
  if head == mine and redis.call('GET', KEYS[1]) == value then
    redis.call('PEXPIRE', KEYS[1], life)
    return 'same'
  end
end
local set = redis.pcall('SET', KEYS[1], value, 'PX', life)
if not set.err then return 'written' end
if string.find(set.err, 'OOM', 1, true) then
  redis.call('DEL', KEYS[1])
  return 'full'
end
return set
`)

// What the script did.
const (
	wrote     = "written"
	wasSame   = "same"
	wasNewer  = "newer"
	wasLate   = "late"
	wasNoRoom = "full"
)
