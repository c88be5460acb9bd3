-- purpose: rule 1. The items of a call are settled one after another, each under pcall: one that fails leaves the others alone.
-- defines: each
-- `settle(at)` gets the index of the item's first argument and answers its verdict. A call that is no whole number of
-- items, or has too many, is refused whole before the first of them.
local function each(first, stride, settle)
  local items = (#ARGV - first + 1) / stride
  if items % 1 ~= 0 or items > MOST_ITEMS then --!guard arity
    error({ err = 'EMQKIND malformed call: ' .. #ARGV - first + 1 .. ' arguments are not 1 to ' .. MOST_ITEMS .. ' items of ' .. stride })
  end
  local verdicts = {}
  local n = 0
  leaving = true
  for at = first, #ARGV, stride do
    local fine, verdict = pcall(settle, at)
    n = n + 1
    verdicts[n] = fine and verdict or torn(verdict)
  end
  if leaving == true then return verdicts end
  local answer = redis.pcall('ZREM', ACTIVE, unpack(leaving)) --!write leave-together
  if type(answer) == 'table' then
    -- Their rows are written, and that they could not leave is told to those who would, and to nobody else.
    local stay = {}
    for _, id in ipairs(leaving) do
      stay[id] = true
    end
    for i = 1, n do
      if stay[ARGV[first + (i - 1) * stride]] and string.sub(verdicts[i], 1, 3) ~= 'EMQ' then verdicts[i] = torn(answer) end --!guard leave-refused
    end
  end
  return verdicts
end
