-- purpose: numbers are checked before an item's first write; nan fails every comparison, so it fails here too.
-- defines: whole, FAR, LONGEST
local FAR = 100000000000000
local LONGEST = 3162240000000 -- a century in ms
local function whole(text, low, high)
  local n = tonumber(text)
  if n and n >= low and n <= high and n % 1 == 0 then return n end
  return nil
end
