-- purpose: the jobs of an `enqueue`: where the arguments of each begin, and what is rare: a lane, a last word.
-- defines: FIXED, items, LAST_WINS; sets MAY_BEGIN
local FIXED = 8 -- arguments of an item before its fields
local items = {}
local LAST_WINS = false
do
  local at = 3
  while at <= #ARGV do
    local fields = whole(ARGV[at + 7], 0, 64)
    -- A malformed call is refused whole, before its first item is admitted.
    if not fields or at + FIXED - 1 + 2 * fields > #ARGV or #items == MOST_ITEMS then --!guard malformed
      return redis.error_reply('EMQKIND malformed call: item ' .. #items + 1)
    end
    items[#items + 1] = at
    if ARGV[at + 6] ~= '' then MAY_BEGIN = true end
    if ARGV[at + 5] == 'replace' or ARGV[at + 5] == 'debounce' then LAST_WINS = true end
    at = at + FIXED + 2 * fields
  end
end
